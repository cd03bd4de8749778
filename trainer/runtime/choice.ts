/** What a policy can run on; `auto` takes a GPU for models that are faster there. */
export const RUNTIME_CHOICES = ['onnx', 'webgpu', 'auto'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];
export type RuntimeKind = Exclude<RuntimeChoice, 'auto'>;
