/**
 * Stands in for the package `global-agent`, which only the install script of onnxruntime-node uses. That script calls
 * `bootstrap` first and reads `ONNXRUNTIME_NODE_INSTALL` afterwards; without that variable it downloads 300 MB of CUDA
 * libraries, which ragen does not use. A variable that is set stands.
 */
exports.bootstrap = () => {
  process.env.ONNXRUNTIME_NODE_INSTALL ??= 'skip';
};
