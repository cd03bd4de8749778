/** Factors of a step, the same for every element. */
export interface AdamwFactors {
  /** On the gradients. */
  readonly scale: number;
  readonly beta1: number;
  readonly beta2: number;
  /** On the weights: 1 − learning rate · weight decay. */
  readonly keep: number;
  /** Learning rate over the bias correction of the first moment. */
  readonly stepSize: number;
  /** One over the root of the bias correction of the second moment. */
  readonly inverseRoot: number;
  readonly epsilon: number;
}
