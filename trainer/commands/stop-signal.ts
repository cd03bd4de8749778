const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Exit status of a program ended by Ctrl-C: 128 + SIGINT. */
export const INTERRUPTED_STATUS = 130;

/**
 * A signal that is aborted when the program is asked to stop: Ctrl-C, SIGTERM, a closed terminal, or the end of the
 * process that started it and kept a channel to it. The second request ends the process at once.
 * @param onFirst told of the first request
 */
export function stopSignal(onFirst: () => void): AbortSignal {
  const controller = new AbortController();
  const stop = () => {
    if (controller.signal.aborted) process.exit(INTERRUPTED_STATUS);
    controller.abort(new DOMException('asked to stop', 'AbortError'));
    onFirst();
  };
  for (const name of STOP_SIGNALS) process.on(name, stop);
  if (process.connected) process.once('disconnect', stop);
  // Listening would keep the program alive for as long as its parent is.
  process.channel?.unref();
  return controller.signal;
}
