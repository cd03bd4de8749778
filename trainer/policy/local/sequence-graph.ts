import { GraphBuilder, type Tensor } from '../../graph/graph.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { decoderHidden, decoderLogits, decoderValues, rightPadded } from '../../models/decoder.ts';
import type { CompiledGrammar } from '../engine/grammar.ts';

/** Added to logits of tokens that a grammar forbids; finite, so that entropies stay finite. */
const FORBIDDEN_LOGIT = -1e9;

/** Rows of equal length that one program takes; entry t of a row is about token t + 1 of its sequence. */
export interface BatchShape {
  readonly rows: number;
  /** Tokens of the longest sequence less one: the last token predicts nothing. */
  readonly time: number;
}

/** A decoder over padded rows with what a loss or a score needs of its predictions. */
export interface SequenceGraph {
  readonly g: GraphBuilder;
  /** All [rows, time]. */
  readonly logProbs: Tensor;
  readonly entropies: Tensor;
  /** Null without a value head. */
  readonly values: Tensor | null;
}

/**
 * Builds the program up to its predictions. Inputs: `ids` and `targets` int32 [rows, time], `inverseTemperature` [],
 * and under a grammar `grammarStates` int32 [rows, time], where the number of states means unconstrained.
 */
export function buildSequenceGraph(
  config: DecoderConfig,
  shape: BatchShape,
  options: { readonly valueHead: boolean; readonly grammar: CompiledGrammar | null },
): SequenceGraph {
  const g = new GraphBuilder();
  const { rows, time } = shape;
  const { vocabularySize } = config;
  const ids = g.input('ids', 'int32', [rows, time]);
  const targets = g.reshape(g.input('targets', 'int32', [rows, time]), [rows * time]);
  const hidden = decoderHidden(g, config, ids, rightPadded(g, config, rows, time));
  let logits = g.mul(decoderLogits(g, config, hidden), g.input('inverseTemperature', 'float32', []));
  if (options.grammar !== null) {
    const table = g.constant(forbiddenLogits(options.grammar), [
      options.grammar.stateCount + 1,
      vocabularySize,
    ]);
    const states = g.reshape(g.input('grammarStates', 'int32', [rows, time]), [rows * time]);
    logits = g.add(logits, g.gather(table, states));
  }
  const distribution = g.logSoftmax(logits);
  const perRow = (x: Tensor) => g.reshape(x, [rows, time]);
  return {
    g,
    logProbs: perRow(g.takeLast(distribution, targets)),
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
