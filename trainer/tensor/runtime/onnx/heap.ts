import { InferenceSession, Tensor } from 'onnxruntime-node';
import { GraphBuilder } from '../../graph/graph.ts';
import { lower } from './lowering.ts';
import { inputName } from './model-builder.ts';
import { encodeModel } from './model-proto.ts';

/** Just below the largest block that glibc's heap learns to keep, 32 MiB. */
const ELEMENTS = 8_000_000;

/**
 * Has the heap keep blocks up to 32 MiB for their next use. glibc gives larger ones than it has seen freed back to the system,
 * which clears their pages again in each run: a tenth of an update. It is shown a block that is taken and freed, 10 ms. Other
 * allocators are not changed by it.
 */
export async function keepBlocks(): Promise<void> {
  const g = new GraphBuilder();
  const values = g.broadcastTo(g.input('value', 'float32', [1]), [ELEMENTS]);
  g.output('first', g.gather(values, g.input('index', 'int32', [1])));
  const session = await InferenceSession.create(encodeModel(lower(g.build(), 1)), {
    enableCpuMemArena: false,
    graphOptimizationLevel: 'disabled',
  });
  await session.run({
    [inputName('value')]: new Tensor('float32', new Float32Array(1), [1]),
    [inputName('index')]: new Tensor('int32', new Int32Array(1), [1]),
  });
  await session.release();
}
