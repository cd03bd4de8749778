const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Exit status of a program ended by Ctrl-C: 128 + SIGINT. */
export const INTERRUPTED_STATUS = 130;
/** Signals so close together are one request: a terminal and npm each pass Ctrl-C on, and then the parent is gone as well. */
const BURST_MS = 1000;

/** A program's readiness to be stopped; disposing of it leaves the signals of the process to their usual effect. */
export interface StopRequests extends Disposable {
  /** Aborted at the first request. */
  readonly signal: AbortSignal;
}

/**
 * Has a signal that is aborted when the program is asked to stop: Ctrl-C, SIGTERM, a closed terminal, or the end of the
 * process that started it and kept a channel to it. A second request by signal, from a second later on, ends the process at once.
 * @param onFirst called on the first request
 */
export function stopRequests(onFirst: () => void): StopRequests {
  const controller = new AbortController();
  let askedAt = 0;
  const stop = () => {
    if (controller.signal.aborted) return;
    askedAt = performance.now();
    controller.abort(new DOMException('asked to stop', 'AbortError'));
    onFirst();
  };
  const onSignal = () => {
    if (controller.signal.aborted && performance.now() - askedAt >= BURST_MS) endNow();
    else stop();
  };
  for (const name of STOP_SIGNALS) process.on(name, onSignal);
  if (process.connected) process.once('disconnect', stop);
  // Listening would keep the program alive for as long as its parent is.
  process.channel?.unref();
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      for (const name of STOP_SIGNALS) process.off(name, onSignal);
      process.off('disconnect', stop);
    },
  };
}

/**
 * Ends the process by SIGINT, which the shell shows as {@link INTERRUPTED_STATUS}. `process.exit` would stop worker threads within
 * calls of ONNX Runtime; their results then have nowhere to go, and it reports a `Napi::Error` and aborts.
 */
function endNow(): void {
  process.emit('exit', INTERRUPTED_STATUS);
  for (const name of STOP_SIGNALS) process.removeAllListeners(name);
  process.kill(process.pid, 'SIGINT');
  // Only the first process of a container is still here: the kernel keeps signals without a handler from it.
  process.exit(INTERRUPTED_STATUS);
}
