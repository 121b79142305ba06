/** Adds line breaks to JSON text, token by token. Parsing it would change large numbers and drop duplicate keys. */
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g
const INDENT = '  '

/** Any other text is returned unchanged. */
export function indented(text: string): string {
  if (!isJson(text)) return text
  let depth = 0
  let result = ''
  let before = ''
  for (const [token] of text.matchAll(TOKENS)) {
    const opens = token === '{' || token === '['
    const closes = token === '}' || token === ']'
    if (closes) depth -= 1
    const isEmpty = closes && (before === '{' || before === '[')
    const startsLine = (closes && !isEmpty) || (!closes && ['{', '[', ','].includes(before))
    result += `${startsLine ? `\n${INDENT.repeat(depth)}` : ''}${token}${token === ':' ? ' ' : ''}`
    if (opens) depth += 1
    before = token
  }
  return result
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
