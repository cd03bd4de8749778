/** Addresses of the parts of the site, as served in `/runs/site.json`; null for a missing part. */
export interface SiteAddresses {
  /** The environment server's pages, ending in a slash. */
  readonly server: string | null;
  /** Prefix of requests to the environment server, ending in a slash: `<api>v1/sessions`. */
  readonly api: string | null;
  /** Prefix of trainer commands that the pages print. */
  readonly trainer: string;
  /** True if trainers can be controlled, with a token. */
  readonly control?: true;
  /** True if checkpoints of runs can be asked, with the same token. */
  readonly checkpoints?: true;
  /** True if the data is stored in files next to the page. */
  readonly exported?: true;
}
