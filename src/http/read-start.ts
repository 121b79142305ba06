/** Returns the body of a response, or the beginning of one that is longer than `maxBytes`. Stops reading then. */
export async function readStart(body: AsyncIterable<Uint8Array> | null, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body ?? []) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > maxBytes) break
  }
  return Buffer.concat(chunks).toString()
}
