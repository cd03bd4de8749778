import htm from 'htm';
import { h, type VNode } from 'preact';

type Html = (parts: TemplateStringsArray, ...values: unknown[]) => VNode;

/**
 * Markup in a template literal, without a build step: `` html`<p class="fine">${text}</p>` ``. Values are escaped; a function
 * as `onClick` and the like is a listener.
 */
// The package declares its ES module's types for CommonJS only.
export const html = (htm as unknown as { bind(create: typeof h): Html }).bind(h);
