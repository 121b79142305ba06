/** An HTTP request that the demo both sends and prints as a curl command. */

export interface Call {
  method: string
  path: string
  headers?: Record<string, string>
  body?: string
}

export interface CallResult {
  status: number
  answer: string
}

export async function send(url: string, { method, path, headers = {}, body }: Call): Promise<CallResult> {
  const response = await fetch(url + path, { method, headers, ...(body === undefined ? {} : { body }) })
  return { status: response.status, answer: await response.text() }
}

/** A command to paste into a shell. Single quotes keep every byte as it is. */
export function curlLine(url: string, { method, path, headers = {}, body }: Call): string {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
  const parts = ['curl', '-sS', '-X', method, quote(url + path)]
  for (const [name, value] of Object.entries(headers)) parts.push('-H', quote(`${name}: ${value}`))
  if (body !== undefined) parts.push('--data-binary', quote(body))
  return parts.join(' ')
}
