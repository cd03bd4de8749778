import { HubError } from './hub-settings.ts';

/** Accepted file names: weights without code, texts, tokenizers and templates. */
const KINDS = /\.(safetensors|json|jinja|txt|md)$|^(LICENSE|LICENCE|NOTICE)[\w.-]*$/i;
/** Weights as transformers and PEFT name them; others, such as `consolidated.safetensors`, duplicate these. */
const WEIGHTS = /^(model|adapter_model|value_head)(-\d+-of-\d+)?\.safetensors$/;
const PICKLES = /\.(bin|pt|pth|ckpt|pkl)$/i;
const CONTROL = /\p{Cc}/u;

/**
 * The files of a repository that a model is read from. Files in folders (other formats, original weights) are left out.
 * @param what the model, for errors
 * @param file the requested GGUF file
 * @throws HubError for a name that leads out of the repository, for a missing file, and where the weights are GGUF
 * files or pickles, which run code when read
 */
export function allowedFiles(names: readonly string[], what: string, file?: string): string[] {
  for (const name of names) {
    const parts = name.split('/');
    if (
      parts.some(part => part === '' || part === '.' || part === '..') ||
      /[\\:]/.test(name) ||
      CONTROL.test(name)
    ) {
      throw new HubError(
        `${what} lists the file ${JSON.stringify(name)}, which leads out of its folder: refused`,
      );
    }
  }
  const gguf = names.filter(name => /\.gguf$/i.test(name) && !name.includes('/'));
  if (file !== undefined) {
    if (names.includes(file)) return [file];
    throw new HubError(`${what} is not there; GGUF files of this repository: ${gguf.join(', ') || 'none'}`);
  }
  const taken = names.filter(
    name => !name.includes('/') && (name.endsWith('.safetensors') ? WEIGHTS.test(name) : KINDS.test(name)),
  );
  const whole = taken.some(name => name.endsWith('.safetensors'));
  if (!whole && gguf.length > 0) {
    throw new HubError(
      `${what} has its weights in GGUF files: name one behind a colon, such as :${gguf[0]} (there are ${gguf.join(', ')})`,
    );
  }
  const pickle = names.find(name => PICKLES.test(name));
  if (!whole && pickle !== undefined) {
    throw new HubError(
      `${what} has its weights in ${pickle} only, a format that runs code when it is read: choose a revision with safetensors, or convert it with transformers (save_pretrained)`,
    );
  }
  return taken;
}
