import { clampLogRatio, LOG_RATIO_LIMIT } from './policy-loss.ts';
import { emptyOutput, type PolicyLossReference, type ReferenceInput } from './policy-reference.test-data.ts';
import type { LossSettings } from './settings.ts';
import { dppoLimits } from './trust-regions/dppo.ts';

/** One trained token of a loss without a mean over its sequence. */
interface Token {
  readonly logProb: number;
  readonly old: number;
  readonly advantage: number;
  readonly selected: boolean;
  /** exp of the clamped log-ratio, and whether the clamp ended its gradient. */
  readonly ratio: number;
  readonly flat: boolean;
}

interface TokenLoss {
  readonly loss: number;
  readonly derivative: number;
  readonly clipped?: boolean;
  readonly clippedLower?: boolean;
}

/** A reference that works token by token. */
function perToken(of: (token: Token, settings: LossSettings) => TokenLoss): PolicyLossReference {
  return (input, settings) => {
    const output = emptyOutput(input.lossMask.length);
    for (let t = 0; t < input.lossMask.length; t++) {
      if (!input.lossMask[t]) continue;
      const move = input.logProbs[t] - input.oldLogProbs[t];
      const found = of(
        {
          logProb: input.logProbs[t],
          old: input.oldLogProbs[t],
          advantage: input.advantages[t],
          selected: input.selected?.[t] === 1,
          ratio: Math.exp(clampLogRatio(move)),
          flat: Math.abs(move) > LOG_RATIO_LIMIT,
        },
        settings,
      );
      output.losses[t] = found.loss;
      output.derivatives[t] = found.derivative;
      output.clipped[t] = found.clipped ? 1 : 0;
      output.clippedLower[t] = found.clippedLower ? 1 : 0;
    }
    return output;
  };
}

/** DPPO: see trust-regions/dppo.ts. */
function dppoToken(token: Token, { dppo }: LossSettings): TokenLoss {
  const { logProb, old, advantage, ratio } = token;
  const { low, high } = dppoLimits(dppo);
  const [p, a] = [Math.exp(logProb), Math.exp(old)];
  const kl = a * (old - logProb) + (1 - a) * Math.log((1 - a + 1e-8) / (1 - p + 1e-8));
  const limit = advantage > 0 ? high : low;
  const away = advantage > 0 ? p > a : p < a;
  const dropped = away && (dppo.divergence === 'tv' ? Math.abs(p - a) : kl) > limit;
  const weight = dropped ? 0 : Math.min(ratio, dppo.ratioCap);
  return {
    loss: -advantage * weight * logProb + dppo.klTau * (logProb - old) ** 2,
    derivative: -advantage * weight + 2 * dppo.klTau * (logProb - old),
    clipped: dropped && advantage !== 0,
    clippedLower: ratio > dppo.ratioCap,
  };
}

/** IPO: see ipo.ts. */
function ipoToken({ logProb, old, advantage, ratio, flat }: Token, { ipo }: LossSettings): TokenLoss {
  const dropped = Math.abs(Math.exp(logProb) - Math.exp(old)) > ipo.threshold;
  const surrogate = dropped ? 0 : -advantage * ratio;
  return {
    loss: surrogate + ipo.klTau * (logProb - old) ** 2,
    derivative: (flat ? 0 : surrogate) + 2 * ipo.klTau * (logProb - old),
    clipped: dropped && advantage !== 0,
  };
}

/** SAPO: see sapo.ts. */
function sapoToken({ advantage, ratio, flat }: Token, { sapo }: LossSettings): TokenLoss {
  const tau = advantage > 0 ? sapo.tauPos : sapo.tauNeg;
  const gate = 1 / (1 + Math.exp(-tau * (ratio - 1)));
  return {
    loss: (-advantage * 4 * gate) / tau,
    derivative: flat ? 0 : -advantage * 4 * gate * (1 - gate) * ratio,
  };
}

/** DRO: see dro.ts. */
function droToken({ logProb, old, advantage }: Token, { dro }: LossSettings): TokenLoss {
  const move = logProb - old;
  return {
    loss: -advantage * logProb + (dro.beta! * move * move) / 2,
    derivative: -advantage + dro.beta! * move,
  };
}

/** Clip-Cov: see clip-cov.ts. */
function clipCovToken({ advantage, ratio, flat, selected }: Token, settings: LossSettings): TokenLoss {
  const plain = -advantage * ratio;
  const bounded = -advantage * Math.min(Math.max(ratio, 1 - settings.clipLow), 1 + settings.clipHigh);
  const clipped = bounded > plain;
  return {
    loss: selected ? 0 : Math.max(plain, bounded),
    derivative: selected || clipped || flat ? 0 : plain,
    clipped,
  };
}

/** KL-Cov: see kl-cov.ts. */
function klCovToken(
  { logProb, old, advantage, ratio, flat, selected }: Token,
  { klCov }: LossSettings,
): TokenLoss {
  const penalty = selected ? klCov.coefficient : 0;
  const move = clampLogRatio(logProb - old);
  return {
    loss: -advantage * ratio + penalty * Math.abs(move),
    derivative: flat ? 0 : -advantage * ratio + penalty * Math.sign(move),
  };
}

/** GMPO: see gmpo.ts. A token's derivative is that of the whole sequence's loss, times the sequence's tokens. */
function gmpoLoss({ lossMask, logProbs, oldLogProbs, advantages }: ReferenceInput, { gmpo }: LossSettings) {
  const output = emptyOutput(lossMask.length);
  const trained = Array.from(lossMask).flatMap((on, t) => (on ? [t] : []));
  const clipped = (t: number) => {
    const d = logProbs[t] - oldLogProbs[t];
    return (advantages[t] > 0 && d > gmpo.high) || (advantages[t] < 0 && d < -gmpo.low);
  };
  const x = (t: number) => {
    const d = logProbs[t] - oldLogProbs[t];
    if (advantages[t] === 0) return 0;
    return advantages[t] > 0 ? Math.min(d, gmpo.high) : Math.max(d, -gmpo.low);
  };
  const mean = trained.reduce((sum, t) => sum + x(t), 0) / Math.max(1, trained.length);
  const ratio = Math.exp(clampLogRatio(mean));
  for (const t of trained) {
    output.losses[t] = -advantages[t] * ratio;
    output.clipped[t] = clipped(t) ? 1 : 0;
    output.derivatives[t] = clipped(t) ? 0 : -advantages[t] * ratio;
  }
  return output;
}

/** References of the losses of 2025 and 2026 by their registered names. */
export const RECENT_REFERENCES: Readonly<Record<string, PolicyLossReference>> = {
  dppo: perToken(dppoToken),
  ipo: perToken(ipoToken),
  sapo: perToken(sapoToken),
  gmpo: gmpoLoss,
  clip_cov: perToken(clipCovToken),
  kl_cov: perToken(klCovToken),
  dro: perToken(droToken),
};
