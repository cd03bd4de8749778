import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Checkpoints } from './checkpoints.ts';

/** Saves a checkpoint again and again, and writes a line after each. Usage: FOLDER MODEL NAME */
const [, , root, model, name] = process.argv;
const checkpoints = new Checkpoints(root, 64);
const facts = { kind: 'weights', name, base_model: 'base', owner: 'mine', overwrite: true } as const;
for (;;) {
  await checkpoints.save(model, facts, async folder => {
    for (let i = 0; i < 200; i++) await writeFile(join(folder, `part-${i}`), 'x');
    await writeFile(
      join(folder, 'adapter_config.json'),
      '{"peft_type":"LORA","r":4,"lora_alpha":32,"target_modules":["q_proj"]}',
    );
  });
  process.stdout.write('saved\n');
}
