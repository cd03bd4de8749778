/** `[namespace/]Name-vN`. */
export const ENVIRONMENT_ID = /^(?:[A-Za-z0-9_.-]+\/)?[A-Za-z0-9_.-]+-v\d+$/;
