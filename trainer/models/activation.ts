import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import { type Activation, ModelConfigError } from './config.ts';

/** Names in `config.json`; `gelu_new` and `gelu_pytorch_tanh` are the same function. */
const NAMES: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'gelu_tanh',
  gelu_pytorch_tanh: 'gelu_tanh',
};

/** @throws ModelConfigError naming the key when the activation is not supported */
export function parseActivation(key: string, name: unknown): Activation {
  const known = typeof name === 'string' && Object.hasOwn(NAMES, name) ? NAMES[name] : undefined;
  if (known !== undefined) return known;
  throw new ModelConfigError(
    `${key} ${JSON.stringify(name)} is not supported; supported: ${Object.keys(NAMES).join(', ')}`,
  );
}

export function activate(g: GraphBuilder, activation: Activation, x: Tensor): Tensor {
  switch (activation) {
    case 'silu':
      return g.silu(x);
    case 'gelu':
      return g.mul(g.mul(x, 0.5), g.add(g.erf(g.mul(x, Math.SQRT1_2)), 1));
    case 'gelu_tanh':
      return geluTanh(g, x);
  }
}

/** x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), Hendrycks and Gimpel's approximation of the Gaussian error linear unit. */
function geluTanh(g: GraphBuilder, x: Tensor): Tensor {
  const inner = g.mul(x, g.add(g.mul(g.mul(x, x), 0.044715), 1));
  const bent = g.tanh(g.mul(inner, Math.sqrt(2 / Math.PI)));
  return g.mul(g.mul(x, 0.5), g.add(bent, 1));
}

/** cap · tanh(x / cap); x itself where there is no cap. */
export function softcap(g: GraphBuilder, x: Tensor, cap: number | null): Tensor {
  return cap === null ? x : g.mul(g.tanh(g.mul(x, 1 / cap)), cap);
}
