/** Runtimes of a policy; `auto` takes a GPU for models that are faster there. */
export const RUNTIME_CHOICES = ['onnx', 'webgpu', 'auto'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];
export type RuntimeKind = Exclude<RuntimeChoice, 'auto'>;

/** Types of the factors of a policy's products; everything else is float32. */
export const PRECISIONS = ['float32', 'float16'] as const;
export type Precision = (typeof PRECISIONS)[number];

/** Default bytes that the sessions of a runtime on the processor may take together, without values of a run. */
export const SESSIONS_BYTES = 2 ** 28;
