/** `npm run build:python`: the wheel and the source distribution of ragen-env in `openapi/python/dist`. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { PROJECT, virtualEnvironment } from '../test/virtual-environment.ts';

const python = virtualEnvironment('ragen-env', 'hatchling');
execFileSync(python, ['-m', 'hatchling', 'build'], { cwd: PROJECT, stdio: 'inherit' });
for (const name of readdirSync(`${PROJECT}/dist`)) console.log(`openapi/python/dist/${name}`);
