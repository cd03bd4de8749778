import { dirname } from 'node:path';
import { readGgufHeader } from '../gguf/gguf-file.ts';
import { isGgufName } from '../gguf/gguf-texts.ts';
import { GgufWeights } from '../gguf/gguf-weights.ts';
import { openModelFile } from './model-file.ts';
import { SafetensorsReader } from './safetensors.ts';

/** Weights of a model by Hugging Face name, read one at a time. */
export type WeightsReader = SafetensorsReader | GgufWeights;

/**
 * Opens a model's weights.
 * @param path its safetensors file; if the folder in the path is a GGUF file, the weights of that file
 * @throws SafetensorsError or GgufError for files that are missing or broken
 */
export async function openWeights(path: string): Promise<WeightsReader> {
  const file = dirname(path);
  if (!isGgufName(file)) return SafetensorsReader.open(path);
  const handle = await openModelFile(file).catch(error => {
    // A folder of that name.
    if ((error as Error).name === 'ModelFileError') return null;
    throw error;
  });
  if (handle === null) return SafetensorsReader.open(path);
  try {
    return new GgufWeights(handle, await readGgufHeader(handle, file));
  } catch (error) {
    await handle.close();
    throw error;
  }
}
