import { existsSync } from 'node:fs';
import { globals } from 'webgpu';

/** Preloaded into a trainer: its GPU is lost in the middle of its work once the file that this variable names is there. */
const file = process.env.LOSE_DEVICE_FILE ?? '';
const { prototype } = (globals as { readonly GPUDevice: { readonly prototype: GPUDevice } }).GPUDevice;
const { createCommandEncoder } = prototype;
prototype.createCommandEncoder = function (descriptor) {
  if (existsSync(file)) this.destroy();
  return createCommandEncoder.call(this, descriptor);
};
