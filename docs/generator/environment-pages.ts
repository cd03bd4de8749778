import { readFileSync } from 'node:fs';
import type { Picture } from '../../env-server/environments/core/environment.ts';
import { createRegistry } from '../../env-server/environments/registry.ts';
import { environmentPage, examplePicture, pageName, pictureName } from './environment-page.ts';
import { wrapped } from './markdown.ts';
import type { EnvironmentMeasurement } from './measure.ts';
import { overviewPage } from './overview-page.ts';

/** Results of `npm run docs -- --measure` by environment id; committed, so that pages can be made without playing. */
export const MEASURED_FILE = new URL('./measured.json', import.meta.url);

export interface Measured {
  readonly [id: string]: EnvironmentMeasurement;
}

export function readMeasured(): Measured {
  return JSON.parse(readFileSync(MEASURED_FILE, 'utf8')) as Measured;
}

/** Every generated page: path from the repository's root → content. */
export async function environmentPages(measured: Measured): Promise<ReadonlyMap<string, string>> {
  const environments = createRegistry().list();
  for (const { spec } of environments) {
    if (!measured[spec.id])
      throw new Error(`${spec.id} has not been measured: npm run docs -- --measure ${spec.id}`);
  }
  const pages = new Map([['docs/environments.md', wrapped(overviewPage(environments, measured))]]);
  for (const environment of environments) {
    const page = await environmentPage(environment, measured[environment.spec.id]);
    pages.set(`docs/environments/${pageName(environment)}`, wrapped(page));
  }
  return pages;
}

/** The picture of every environment that paints one: path from the repository's root → picture. */
export async function environmentPictures(): Promise<ReadonlyMap<string, Picture>> {
  const pictures = new Map<string, Picture>();
  for (const environment of createRegistry().list()) {
    const picture = await examplePicture(environment);
    if (picture) pictures.set(`docs/environments/${pictureName(environment)}`, picture);
  }
  return pictures;
}
