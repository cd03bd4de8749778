/**
 * Settings of glibc's allocator, applied unless the user has set their own. By default glibc raises its `mmap`
 * threshold when a large buffer is freed, places later large buffers among small ones, and then cannot return their
 * memory to the system. The image of the environment server and docs/how-to/deployment.md repeat these values; a test
 * compares them.
 */
export const ALLOCATOR = {
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: '131072',
  MALLOC_TRIM_THRESHOLD_: '131072',
} as const;
