/**
 * The eight rotations and mirror images of a board: for each the cells of the board in the order in which the image shows
 * them, row by row. Boards that are not square have images with their sides exchanged.
 */
export function boardImages(rows: number, cols: number): number[][] {
  const flips = [
    (row: number, col: number) => row * cols + col,
    (row: number, col: number) => row * cols + (cols - 1 - col),
    (row: number, col: number) => (rows - 1 - row) * cols + col,
    (row: number, col: number) => (rows - 1 - row) * cols + (cols - 1 - col),
  ];
  const cells = (height: number, width: number, cellAt: (row: number, col: number) => number) =>
    Array.from({ length: height * width }, (_, i) => cellAt(Math.floor(i / width), i % width));
  return flips.flatMap(flip => [cells(rows, cols, flip), cells(cols, rows, (row, col) => flip(col, row))]);
}

/**
 * A name of a board that its rotations and mirror images share.
 * @param symbols of the cells, row by row
 * @returns the first of the eight images in the order of their texts
 */
export function symmetricKey(rows: number, cols: number, symbols: ArrayLike<string>): string {
  const sides = [`${rows}x${cols} `, `${cols}x${rows} `];
  const texts = boardImages(rows, cols).map((image, i) => {
    let text = sides[i % 2];
    for (const cell of image) text += symbols[cell];
    return text;
  });
  return texts.sort()[0];
}
