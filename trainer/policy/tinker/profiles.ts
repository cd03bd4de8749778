/** Servers of the Tinker API with known behavior; the API does not identify the server. */
export const TINKER_SERVERS = ['service', 'skyrl', 'skyrl-jax', 'ragen'] as const;
export type TinkerServer = (typeof TINKER_SERVERS)[number];

/** Differences between servers behind the same routes. */
export interface TinkerProfile {
  /**
   * `sum`: the gradient is that of the sum over tokens and datums. `mean`: a datum's loss is divided by the sum of its `weights`,
   * and then averaged over the datums since the last optimizer step.
   */
  readonly reduction: 'sum' | 'mean';
  /** `grad_clip_norm` is applied. */
  readonly clips: boolean;
  /** Parameters of AdamW besides the learning rate are applied. */
  readonly appliesAdam: boolean;
  /** A sampler keeps its weights while the model learns on. */
  readonly keepsSamplers: boolean;
  /** `load_weights` creates the model; otherwise it loads into one that was just created. */
  readonly loadCreates: boolean;
}

const RAGEN: TinkerProfile = {
  reduction: 'sum',
  clips: true,
  appliesAdam: true,
  keepsSamplers: true,
  loadCreates: true,
};
const SKYRL: TinkerProfile = { ...RAGEN, clips: false, keepsSamplers: false, loadCreates: false };

/** The service as documented; SkyRL 0.4.0 on FSDP or Megatron as read, on JAX as measured; ragen as built. */
export const TINKER_PROFILES: Readonly<Record<TinkerServer, TinkerProfile>> = {
  service: RAGEN,
  skyrl: { ...SKYRL, appliesAdam: false },
  'skyrl-jax': { ...SKYRL, reduction: 'mean' },
  ragen: RAGEN,
};
