/** Addresses of the parts of the site, as in `/runs/site.json`; null for a part that is missing. */
export interface SiteAddresses {
  /** The environment server's pages, ending in a slash. */
  readonly server: string | null;
  /** Prefix of requests to the environment server, ending in a slash: `<api>v1/sessions`. */
  readonly api: string | null;
  /** Prefix of the trainer's commands for the reader of the pages. */
  readonly trainer: string;
  /** Trainers can be controlled, with a token. */
  readonly control?: true;
  /** The data lies in files next to the page. */
  readonly exported?: true;
}
