import type { Json } from '../../../shared/json.ts';
import { isParts, type ObservationPart, partsOfText } from '../../../shared/observation-parts.ts';
import { imagePart, scaled, scaledPart } from './drawing/scale.ts';
import type { AnyEnvironment } from './environment.ts';

/**
 * A state as parts: its text, and its picture where the environment paints one. Pictures inside the text, as in the
 * format `image`, become parts at that point, and no other picture is added.
 * @param size of pictures' longer side, in pixels; as they are painted without it
 */
export function observedParts(environment: AnyEnvironment, state: Json, size?: number): ObservationPart[] {
  const seen = environment.observe(state, 'text');
  if (isParts(seen)) return [...seen];
  const parts = partsOfText(typeof seen === 'string' ? seen : JSON.stringify(seen));
  if (parts.some(({ type }) => type === 'image')) {
    return size === undefined
      ? parts
      : parts.map(part => (part.type === 'image' ? scaledPart(part, size) : part));
  }
  if (!environment.render) return parts;
  const picture = environment.render(state);
  return [...parts, imagePart(size === undefined ? picture : scaled(picture, size))];
}

/** An environment that has the form `parts`, too. Its other members are those of the environment. */
export function withParts(environment: AnyEnvironment): AnyEnvironment {
  const observe: AnyEnvironment['observe'] = (state, format) =>
    format === 'parts'
      ? (observedParts(environment, state) as unknown as Json)
      : environment.observe(state, format);
  return Object.assign(Object.create(environment) as AnyEnvironment, { observe });
}
