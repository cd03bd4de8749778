import Type from 'typebox';
import { DEFAULT_LOSS_SCALE } from '../../policy/learning/loss-scale.ts';
import { DEFAULT_TOKEN_BUDGET } from '../../policy/learning/micro-batches.ts';
import { PRECISIONS, RUNTIME_CHOICES } from '../../tensor/runtime/choice.ts';
import { ReferenceEndpoint } from './endpoint.ts';
import { LoraSection } from './lora.ts';
import { aboveZero, choice, flag, notNegative, orNull, positive, section, strict, text } from './schema.ts';
import { TinkerSection } from './tinker.ts';

/** A separate model that estimates values, in place of a head on the policy's trunk. */
const CriticSection = Type.Object(
  {
    /** Folder of the model it begins as; null: as the policy, when its own training begins. */
    init: orNull(Type.String({ minLength: 1 })),
    /** Highest learning rate; the schedule and all else of `optimizer` is the policy's. */
    learning_rate: notNegative(1e-5),
  },
  strict,
);

/** Size and place of the policy. `init` is `scratch`, a folder in the Hugging Face layout (a model, or an adapter in PEFT's), or `organization/name@revision` on a hub. */
export const PolicySettings = Type.Object(
  {
    init: text('scratch'),
    hidden_size: positive(64),
    layers: positive(2),
    heads: positive(4),
    key_value_heads: orNull(Type.Integer({ minimum: 1 })),
    intermediate_size: positive(160),
    /** Longest sequence, prompts and responses together, in tokens. */
    context: positive(161),
    /** `context` is only the most: a run takes what the first prompts and its turns need, as far as the model has positions. */
    fit_context: flag(false),
    /**
     * Tokens of a policy from scratch. `words`: those of the environments' vocabularies. `bytes`: 256 bytes, the tags of the prompt
     * and the actions that environments name, which write any text. Or a `tokenizer.json`, or its folder. Null: words where all
     * environments have a vocabulary, else bytes. With the runtime `tinker` that of the model, as a folder or by its name on a hub.
     */
    tokenizer: orNull(Type.String({ minLength: 1 })),
    rope_theta: aboveZero(10_000),
    /** Standard deviation of fresh weights. */
    initializer_range: aboveZero(0.02),
    /** Values are estimated: by a head on the trunk, or by the critic where there is one. */
    value_head: flag(true),
    /** Reinforcement learning goes on with the optimizer's moments of the warm start, or of the checkpoint in `init`. */
    keep_optimizer: flag(false),
    /** Estimates values with separate weights; null: the policy's trunk does. */
    critic: orNull(CriticSection),
    /** Learns adapters next to the model of `init`, which stays as it is; null: all weights. */
    lora: orNull(LoraSection),
    /** Reference policy of KL terms: a checkpoint folder; null: the policy as training finds it. */
    reference: orNull(Type.String({ minLength: 1 })),
    /** Reference policy behind an endpoint, which must have the policy's tokenizer; null: `reference` applies. */
    reference_endpoint: orNull(ReferenceEndpoint),
    /** Iterations after which the reference becomes the policy as it then is; null: it stays. */
    reference_refresh_every: orNull(Type.Integer({ minimum: 1 })),
    /** `onnx`: the processor; `webgpu`: the GPU; `auto`: the GPU where there is one and the model is not small; `tinker`: a server of the Tinker API. */
    runtime: choice([...RUNTIME_CHOICES, 'tinker'], 'onnx'),
    /** The server of the runtime `tinker`, which trains LoRA adapters of its model `init`. */
    tinker: orNull(TinkerSection),
    /** Type of the factors of products: `float16` takes `webgpu` on a GPU that has it; sums, weights and all else stay float32. */
    precision: choice(PRECISIONS, 'float32'),
    /** Gibibytes that the GPU has, for WebGPU does not say: what cannot fit is refused at the start. Null leaves it to the GPU. */
    gpu_memory_gib: orNull(aboveZero(1)),
    /** With `float16`: the loss is multiplied by `initial` before its gradients, by `back_off` times as much after one overflowed. */
    loss_scale: Type.Object(
      {
        initial: Type.Number({ minimum: 1, maximum: 2 ** 24, default: DEFAULT_LOSS_SCALE.initial }),
        /** Steps without an overflow after which the factor doubles. */
        growth_interval: positive(DEFAULT_LOSS_SCALE.growthInterval),
        back_off: Type.Number({
          exclusiveMinimum: 0,
          exclusiveMaximum: 1,
          default: DEFAULT_LOSS_SCALE.backOff,
        }),
      },
      section,
    ),
    /**
     * Worker threads that share a mini-batch, and threads of each. Null takes the machine's cores; a GPU is driven by one,
     * regardless of this number. Sums are taken in the
     * order of the workers, so their number is part of what a run is.
     */
    workers: orNull(Type.Integer({ minimum: 1 })),
    threads: positive(1),
    /** Tokens that go through the model at once while it learns or scores; what they add up to does not change. */
    micro_batch_tokens: positive(DEFAULT_TOKEN_BUDGET),
    /** Gradient checkpointing: computes each layer again in the backward pass instead of keeping its activations. Less memory, more time. */
    recompute: flag(false),
  },
  section,
);
