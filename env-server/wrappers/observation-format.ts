import type { Static } from 'typebox';
import type { Json } from '../../shared/json.ts';
import { textOfParts } from '../../shared/observation-parts.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { MAX_PICTURE_SIZE, MIN_PICTURE_SIZE, observedParts } from '../environments/core/drawing/png.ts';
import { type AnyEnvironment, observationSpaces } from '../environments/core/environment.ts';
import { list, PART } from '../environments/core/spaces.ts';
import { altered, UnfitWrapper, wrapper } from './layer.ts';

const FORMATS = ['grid', 'coord', 'grid_coord', 'image', 'structured', 'parts'] as const;

const optionsSchema = closed({
  format: Type.Union(
    FORMATS.map(format => Type.Literal(format)),
    {
      description:
        'The form that observations take in place of text: structured is an object, image a PNG as data: URL, parts a list of texts and pictures.',
    },
  ),
  size: Type.Optional(
    Type.Integer({
      minimum: MIN_PICTURE_SIZE,
      maximum: MAX_PICTURE_SIZE,
      description: 'Pixels of the longer side of pictures, in the forms image and parts.',
    }),
  ),
});
type Options = Static<typeof optionsSchema>;

export const observationFormat = wrapper({
  name: 'observation_format',
  title: 'Chooses the form of the observation.',
  optionsSchema,
  wrap(environment, { format: chosen, size }) {
    const { id, observationFormats } = environment.spec;
    if (chosen !== 'parts' && !observationFormats.includes(chosen)) {
      throw new UnfitWrapper(
        '/format',
        `${id} has no ${chosen} form; it has ${[...observationFormats, 'parts'].join(', ')}`,
      );
    }
    if (size !== undefined && chosen !== 'parts' && chosen !== 'image') {
      throw new UnfitWrapper('/size', `the ${chosen} form has no pictures; image and parts have`);
    }
    const observe = observerOf(environment, chosen, size);
    return altered(environment, {
      observationSpaces: config => {
        const spaces = observationSpaces(environment, config);
        if (chosen === 'parts') return { ...spaces, text: list(PART) };
        return chosen === 'structured' ? { ...spaces, text: spaces.structured } : spaces;
      },
      observe: (state, format) => (format === 'text' ? observe(state) : environment.observe(state, format)),
    });
  },
});

function observerOf(
  environment: AnyEnvironment,
  chosen: Options['format'],
  size: number | undefined,
): (state: Json) => Json {
  if (chosen === 'parts') return state => observedParts(environment, state, size) as unknown as Json;
  if (chosen !== 'image' || size === undefined) return state => environment.observe(state, chosen);
  const seen = altered(environment, { observe: state => environment.observe(state, 'image') });
  return state => textOfParts(observedParts(seen, state, size));
}
