/**
 * Bundles the editor of programs for browsers, because CodeMirror comes as fourteen packages of ten times its size:
 * `npm run editor` writes site/player/codemirror.mjs with what codemirror.d.mts names.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';

const FOLDER = join(import.meta.dirname, '../site/player');
export const BUNDLE = join(FOLDER, 'codemirror.mjs');
/** The license asks for it in every copy. */
const NOTICE = `/*! CodeMirror 6 and Lezer, MIT License. Copyright (C) by Marijn Haverbeke and others.
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright notice and
this permission notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED
"AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING
FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */`;

/** The bundle, as one module. */
export async function bundleEditor(): Promise<string> {
  const { outputFiles } = await build({
    stdin: {
      contents: readFileSync(join(FOLDER, 'codemirror.d.mts'), 'utf8'),
      loader: 'ts',
      resolveDir: FOLDER,
    },
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    legalComments: 'none',
    banner: { js: NOTICE },
    write: false,
  });
  return outputFiles[0].text;
}

if (import.meta.main) writeFileSync(BUNDLE, await bundleEditor());
