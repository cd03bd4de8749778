/** Milliseconds, enough for a browser that asks where to save. */
const KEEP_MS = 60_000;

/** Offers a file for download; characters that file systems reject are replaced in its name. */
export function saveFile(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\w.-]+/g, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_MS);
}
