import { declareDropout } from '../../models/adapters/dropout.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { decoderHidden, decoderLogits, decoderValues } from '../../models/decoder.ts';
import {
  collect,
  type PackedLayout,
  rightPadded,
  type SelectedPositions,
  selectPositions,
  spread,
} from '../../models/sequence-layout.ts';
import { GraphBuilder, type Shape, type Tensor } from '../../tensor/graph/graph.ts';

/** Most memory of one copy of logits: on the processor, and on a GPU, which needs many rows to be busy. */
const LOGITS_BYTES = { processor: 2 ** 26, gpu: 2 ** 29 };
const FLOAT_BYTES = 4;

/** Rows that one program takes; time t of a row predicts token t + 1 of its sequence. */
export interface BatchShape {
  readonly rows: number;
  /** Tokens of the longest sequence less one: the last token predicts nothing. */
  readonly time: number;
  /** Most requested predictions of a row; `time`: all. */
  readonly predictions: number;
  /**
   * Numbers of tokens and predictions where rows are packed: one after the other, with at least one of padding, only at
   * the end. Null: each row is padded to `time` and `predictions`.
   */
  readonly packed: {
    readonly tokens: number;
    readonly predictions: number;
    /** Rows share the tokens with which their prompts begin alike, except the last of a prompt; false when absent. */
    readonly shared?: boolean;
  } | null;
}

/** Names a shape: programs of equal names are the same. */
export function shapeKey({ rows, time, predictions, packed }: BatchShape): string {
  const { tokens, predictions: looked, shared = false } = packed ?? {};
  return [rows, time, predictions, ...(packed ? [tokens, looked, shared] : [])].join();
}

/** A decoder over rows, with the tensors that a loss or a score needs of its predictions. */
export interface SequenceGraph {
  readonly g: GraphBuilder;
  /** Shape of the tensors below: [rows, predictions], or where rows are packed [predictions]. */
  readonly shape: Shape;
  /** Null for a critic. */
  readonly logProbs: Tensor | null;
  readonly entropies: Tensor | null;
  /** Σ π² over the vocabulary, if requested. */
  readonly squares?: Tensor | null;
  /** Null without a value head. */
  readonly values: Tensor | null;
  /**
   * Sums a tensor of this shape over each sequence, and returns the sum at every prediction. The tensor is 0 in
   * padding. No gradient.
   */
  sequenceSum(x: Tensor): Tensor;
}

/**
 * Builds the program up to its predictions. Inputs: `ids` int32 [rows, time], `targets` int32 [rows, predictions],
 * `inverseTemperature` []. If not all predictions are requested, `positions` int32 [rows, predictions] names those that
 * are. Under masks there are `masks` float32 [masks, vocabulary], added to logits, and `maskRows` int32
 * [rows, predictions]. With packed rows, `ids` are [tokens], `targets` and `maskRows` [predictions], and a {@link
 * PackedLayout} is an input for tokens (`places`, `tokens`). If not all predictions are requested, there is another for
 * these (`askedPlaces`, `askedTokens`), with the token of each (`asked`) and the prediction of each token
 * (`askedInverse`). A critic predicts no tokens, and has no `targets`, `inverseTemperature` or masks.
 */
export function buildSequenceGraph(
  config: DecoderConfig,
  shape: BatchShape,
  options: {
    readonly valueHead: boolean;
    readonly critic: boolean;
    /** Number of masks that tokens were sampled under; 0: none was. */
    readonly masks: number;
    /** Also Σ π² over the vocabulary at each prediction. */
    readonly squares?: boolean;
    /** True if it runs on a GPU. */
    readonly onGpu?: boolean;
    /** Number of predictions with logits that exist at once; {@link logitRows} when absent. */
    readonly logitRows?: number;
    /**
     * Share of the adapters' inputs that becomes 0, by the numbers of rows in the input `dropoutRows`; none when
     * absent.
     */
    readonly dropout?: number;
  },
): SequenceGraph {
  const g = new GraphBuilder();
  const { rows, time, packed } = shape;
  const extents = packed ? [packed.predictions] : [rows, shape.predictions];
  const ids = g.input('ids', 'int32', packed ? [packed.tokens] : [rows, time]);
  const packing = packed && {
    ...packingInputs(g, { places: rows * time, tokens: packed.tokens }),
    shared: packed.shared,
  };
  const tokens = packed ? packed.tokens : rows * time;
  const layout = {
    ...rightPadded(g, config, rows, time),
    packing: packing ?? undefined,
    dropout: options.dropout ? declareDropout(g, options.dropout, tokens) : undefined,
  };
  const selection = shape.predictions === time ? undefined : selected(g, config, shape);
  const hidden = decoderHidden(g, config, ids, layout, selection);
  const among = selection?.packing ?? packing;
  const predicted = options.critic
    ? { logProbs: null, entropies: null }
    : tokenPredictions(g, config, hidden, extents, {
        logitRows: logitRows(config, options.onGpu ?? false),
        ...options,
      });
  return {
    g,
    shape: extents,
    ...predicted,
    values: options.valueHead ? g.reshape(decoderValues(g, config, hidden), extents) : null,
    sequenceSum: x => (among ? packedSum(g, x, among, rows) : g.sum(x, [-1], true)),
  };
}

function tokenPredictions(
  g: GraphBuilder,
  config: DecoderConfig,
  hidden: Tensor,
  extents: Shape,
  {
    masks,
    squares: squared = false,
    logitRows: atOnce,
  }: { readonly masks: number; readonly squares?: boolean; readonly logitRows: number },
): { readonly logProbs: Tensor; readonly entropies: Tensor; readonly squares?: Tensor } {
  const flat = (name: string) => g.reshape(g.input(name, 'int32', extents), [-1]);
  const inverseTemperature = g.input('inverseTemperature', 'float32', []);
  const table = masks > 0 ? g.input('masks', 'float32', [masks, config.vocabularySize]) : null;
  const maskRows = table && flat('maskRows');
  const targets = flat('targets');
  const predictionsOf = (rows: (x: Tensor) => Tensor) => {
    let logits = decoderLogits(g, config, rows(hidden), inverseTemperature);
    if (table !== null) logits = g.add(logits, g.gather(table, rows(maskRows!)));
    const distribution = g.logSoftmax(logits);
    const entropies = g.neg(g.sum(g.mul(g.exp(distribution), distribution), [-1]));
    const squares = squared ? { squares: g.sum(g.exp(g.mul(distribution, 2)), [-1]) } : {};
    return { logProbs: g.takeLast(distribution, rows(targets)), entropies, ...squares };
  };
  const count = targets.shape[0];
  if (count <= atOnce) {
    const { logProbs, entropies, squares } = predictionsOf(x => x);
    return {
      logProbs: g.reshape(logProbs, extents),
      entropies: g.reshape(entropies, extents),
      ...(squares ? { squares: g.reshape(squares, extents) } : {}),
    };
  }
  const pieces = Array.from({ length: Math.ceil(count / atOnce) }, (_, i) => {
    const [start, end] = [i * atOnce, Math.min(count, (i + 1) * atOnce)];
    return g.stage(() => predictionsOf(x => g.slice(x, 0, start, end)), true);
  });
  const joined = (name: 'logProbs' | 'entropies' | 'squares') =>
    g.reshape(
      g.concat(
        pieces.map(piece => piece[name]!),
        0,
      ),
      extents,
    );
  return {
    logProbs: joined('logProbs'),
    entropies: joined('entropies'),
    ...(squared ? { squares: joined('squares') } : {}),
  };
}

/**
 * Number of predictions with logits that exist at once; more are computed in parts, and recomputed in the backward
 * pass.
 */
export function logitRows({ vocabularySize }: Pick<DecoderConfig, 'vocabularySize'>, onGpu: boolean): number {
  const bytes = onGpu ? LOGITS_BYTES.gpu : LOGITS_BYTES.processor;
  return Math.max(1, Math.floor(bytes / (FLOAT_BYTES * vocabularySize)));
}

/** The requested predictions, where not all are. */
function selected(
  g: GraphBuilder,
  config: DecoderConfig,
  { rows, time, predictions, packed }: BatchShape,
): SelectedPositions {
  const selection = selectPositions(g, config, g.input('positions', 'int32', [rows, predictions]), time);
  if (packed === null) return selection;
  return {
    ...selection,
    tokens: g.input('asked', 'int32', [packed.predictions]),
    inverse: g.input('askedInverse', 'int32', [packed.tokens]),
    packing: packingInputs(g, { askedPlaces: rows * predictions, askedTokens: packed.predictions }),
  };
}

function packingInputs(g: GraphBuilder, extents: { readonly [name: string]: number }): PackedLayout {
  const [places, tokens] = Object.entries(extents).map(([name, extent]) => g.input(name, 'int32', [extent]));
  return { places, tokens };
}

function packedSum(g: GraphBuilder, x: Tensor, packing: PackedLayout, rows: number): Tensor {
  const column = g.reshape(x, [-1, 1]);
  const padded = g.reshape(spread(g, column, packing), [rows, -1]);
  const sums = g.broadcastTo(g.sum(padded, [-1], true), padded.shape);
  return g.stopGradient(g.reshape(collect(g, g.reshape(sums, [-1, 1]), packing), x.shape));
}
