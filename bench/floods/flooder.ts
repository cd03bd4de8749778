import { ATTACKS } from './attacks.ts';

/** One attack in a separate process: `node flooder.ts <number> <origin>`. It says that it has begun, and ends when it is killed. */

const [number, origin] = process.argv.slice(2);
const attack = ATTACKS[Number(number)];
if (!attack || origin === undefined) throw new Error('usage: flooder.ts <number of the attack> <origin>');
console.log('begun');
await attack.run(origin);
