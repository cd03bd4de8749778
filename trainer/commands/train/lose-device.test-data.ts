import { existsSync } from 'node:fs';
import { globals } from 'webgpu';

/** Preloaded into a trainer: its GPU is lost in the middle of its work once it has written what this variable names. */
const path = process.env.LOSE_DEVICE_AFTER ?? '';
const { prototype } = (globals as { readonly GPUDevice: { readonly prototype: GPUDevice } }).GPUDevice;
const { createCommandEncoder } = prototype;
prototype.createCommandEncoder = function (descriptor) {
  if (existsSync(path)) this.destroy();
  return createCommandEncoder.call(this, descriptor);
};
