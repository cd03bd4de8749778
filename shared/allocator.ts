/**
 * Settings of glibc's allocator, where nobody has set others. By default it learns from large buffers that were freed to
 * put later ones among small ones, where their memory cannot be given back.
 * The image of the environment server and docs/how-to/deployment.md have the same, which a test compares.
 */
export const ALLOCATOR = {
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: '131072',
  MALLOC_TRIM_THRESHOLD_: '131072',
} as const;
