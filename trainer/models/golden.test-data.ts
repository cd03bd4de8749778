import { readFileSync } from 'node:fs';
import { gradients } from '../tensor/graph/gradients.ts';
import { GraphBuilder, type Tensor } from '../tensor/graph/graph.ts';
import type { Graph } from '../tensor/graph/tensor.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { declareDropout } from './adapters/lora.ts';
import type { DecoderConfig } from './config.ts';
import { decoderHidden, decoderLogits } from './decoder.ts';
import { SafetensorsReader } from './files/safetensors.ts';
import { type ParameterSpec, parameterSpecs } from './parameters.ts';
import { ropeTables, ropeWidth } from './rope.ts';
import { MASKED_SCORE, type SequenceLayout } from './sequence-layout.ts';

/** Golden models of tests, and a loss on their batch. */

export const folderOf = (model: string) => new URL(`../../test/golden/models/${model}/`, import.meta.url);
/** A JSON file of a golden model. */
export const read = (model: string, file: string) =>
  JSON.parse(readFileSync(new URL(file, folderOf(model)), 'utf8'));

/** The weights of a golden model, without a value head. */
export async function goldenWeights(model: string, config: DecoderConfig): Promise<ParameterStore> {
  const store = new ParameterStore(parameterSpecs(config, false));
  await using file = await SafetensorsReader.open(new URL('model.safetensors', folderOf(model)).pathname);
  for (const { name } of store.layout) await file.read(name, store.array(name));
  return store;
}

export interface GoldenBatch {
  readonly ids: number[][];
  readonly mask: number[][];
  readonly positions: number[][];
}

/** The batch of a golden model's expectations. */
export function goldenBatch(model: string): GoldenBatch {
  const { forward } = read(model, 'expected.json');
  return { ids: forward.input_ids, mask: forward.attention_mask, positions: forward.position_ids };
}

/** The golden batch, padded left and right, with its loss over valid positions and the gradients of given weights, with dropout of adapters where it is given. */
export function buildLoss(
  config: DecoderConfig,
  batch: GoldenBatch,
  trained: readonly ParameterSpec[],
  dropout?: number,
): Graph {
  const g = new GraphBuilder();
  const [rows, time] = [batch.ids.length, batch.ids[0].length];
  const width = ropeWidth(config);
  const ids = g.input('ids', 'int32', [rows, time]);
  const mask = g.input('mask', 'float32', [rows, time]);
  const angles = ropeTables(config, batch.positions.flat());
  const padded = paddedAnywhere(g, mask, {
    cos: g.constant(angles.cos, [rows, time, width]),
    sin: g.constant(angles.sin, [rows, time, width]),
  });
  const layout =
    dropout === undefined ? padded : { ...padded, dropout: declareDropout(g, dropout, rows * time) };
  const logits = decoderLogits(g, config, decoderHidden(g, config, ids, layout));
  const perRow = g.reshape(logits, [rows, time, config.vocabularySize]);
  const predictions = g.slice(g.logSoftmax(perRow), 1, 0, time - 1);
  const logProbs = g.takeLast(predictions, g.slice(ids, 1, 1, time));
  const valid = g.mul(g.slice(mask, 1, 0, time - 1), g.slice(mask, 1, 1, time));
  const loss = g.neg(g.div(g.sum(g.mul(logProbs, valid)), g.sum(valid)));
  const grads = gradients(
    g,
    loss,
    trained.map(({ name, shape }) => g.parameter(name, shape)),
  );
  trained.forEach(({ name }, i) => {
    g.output(name, grads[i]);
  });
  g.output('logits', perRow);
  g.output('logProbs', logProbs);
  g.output('loss', loss);
  return g.build();
}

/**
 * Rows padded anywhere: `attentionMask` [rows, time] is 1 on real tokens and `angles` holds cos and sin of their
 * positions.
 */
function paddedAnywhere(
  g: GraphBuilder,
  attentionMask: Tensor,
  angles: { readonly cos: Tensor; readonly sin: Tensor },
): SequenceLayout {
  const [rows, time] = attentionMask.shape;
  const keys = g.reshape(g.mul(g.sub(1, attentionMask), MASKED_SCORE), [rows, 1, 1, time]);
  return { ...angles, attentionBias: keys };
}
