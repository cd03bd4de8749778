import { GraphBuilder, type Tensor } from '../../graph/graph.ts';
import type { DecoderConfig } from '../../models/config.ts';
import {
  decoderHidden,
  decoderLogits,
  decoderValues,
  packedRows,
  rightPadded,
  selectPositions,
} from '../../models/decoder.ts';
import type { CompiledGrammar } from '../engine/grammar.ts';

/** Added to logits of tokens that a grammar forbids; finite, so that entropies stay finite. */
const FORBIDDEN_LOGIT = -1e9;

/** Rows of equal length that one program takes; time t of a row predicts token t + 1 of its sequence. */
export interface BatchShape {
  readonly rows: number;
  /** Tokens of the longest sequence less one: the last token predicts nothing. */
  readonly time: number;
  /** Predictions of every row that are looked at; `time` looks at all. */
  readonly predictions: number;
}

/** A decoder over padded rows with what a loss or a score needs of its predictions. */
export interface SequenceGraph {
  readonly g: GraphBuilder;
  /** All [rows, predictions]. */
  readonly logProbs: Tensor;
  readonly entropies: Tensor;
  /** Null without a value head. */
  readonly values: Tensor | null;
}

/**
 * Builds the program up to its predictions. Inputs: `ids` int32 [rows, time], `targets` int32 [rows, predictions],
 * `inverseTemperature` [], where not all predictions are looked at their `positions` int32 [rows, predictions], and under a
 * grammar `grammarStates` int32 [rows, predictions], where the number of states means unconstrained. Packed rows also take
 * `segments` and `places` int32 [rows, time]: the sequence that a token belongs to, and its position there.
 */
export function buildSequenceGraph(
  config: DecoderConfig,
  shape: BatchShape,
  options: {
    readonly valueHead: boolean;
    readonly grammar: CompiledGrammar | null;
    /** Rows hold several sequences each. */
    readonly packed?: boolean;
  },
): SequenceGraph {
  const g = new GraphBuilder();
  const { rows, time, predictions } = shape;
  const { vocabularySize } = config;
  const ids = g.input('ids', 'int32', [rows, time]);
  const flat = (name: string) => g.reshape(g.input(name, 'int32', [rows, predictions]), [rows * predictions]);
  const selection =
    predictions === time
      ? undefined
      : selectPositions(g, config, g.input('positions', 'int32', [rows, predictions]), time);
  const rowInput = (name: string) => g.input(name, 'int32', [rows, time]);
  const packed = options.packed ? packedRows(g, config, rowInput('segments'), rowInput('places')) : null;
  const layout = packed ?? rightPadded(g, config, rows, time);
  const hidden = decoderHidden(
    g,
    config,
    ids,
    layout,
    selection && packed ? packed.select(selection) : selection,
  );
  // The temperature divides the logits; on the hidden states it is the same and less to multiply.
  const tempered = g.mul(hidden, g.input('inverseTemperature', 'float32', []));
  let logits = decoderLogits(g, config, tempered);
  if (options.grammar !== null) {
    const table = g.constant(forbiddenLogits(options.grammar), [
      options.grammar.stateCount + 1,
      vocabularySize,
    ]);
    logits = g.add(logits, g.gather(table, flat('grammarStates')));
  }
  const distribution = g.logSoftmax(logits);
  const perRow = (x: Tensor) => g.reshape(x, [rows, predictions]);
  return {
    g,
    logProbs: perRow(g.takeLast(distribution, flat('targets'))),
    entropies: perRow(g.neg(g.sum(g.mul(g.exp(distribution), distribution), [-1]))),
    values: options.valueHead ? perRow(decoderValues(g, config, hidden)) : null,
  };
}

/** [states + 1, vocabulary]: 0 where a token is allowed, the last row all 0. */
function forbiddenLogits(grammar: CompiledGrammar): Float32Array {
  const size = grammar.allowed.length;
  const table = new Float32Array(size + size / grammar.stateCount);
  for (let i = 0; i < size; i++) if (!grammar.allowed[i]) table[i] = FORBIDDEN_LOGIT;
  return table;
}
