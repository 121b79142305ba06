/** JSON text of parsed values. */

/**
 * JSON.stringify for a parsed value, however deeply it is nested: JSON.parse reads deeper than JSON.stringify writes.
 * @param writeDeep handles a value that is too deep for JSON.stringify
 */
export function toJsonText(value: unknown, writeDeep: (value: unknown) => string = stringifyDeep): string {
  try {
    return JSON.stringify(value)
  } catch (error) {
    if (error instanceof RangeError) return writeDeep(value)
    throw error
  }
}

/** Arrays and objects that are open, with the position of their next element. */
interface Open {
  value: object
  names: string[] | null
  next: number
}

/** JSON.stringify without recursion. */
function stringifyDeep(root: unknown): string {
  let text = ''
  const stack: Open[] = []
  const write = (value: unknown) => {
    if (typeof value !== 'object' || value === null) {
      text += JSON.stringify(value)
      return
    }
    text += Array.isArray(value) ? '[' : '{'
    stack.push({ value, names: Array.isArray(value) ? null : Object.keys(value), next: 0 })
  }
  write(root)
  for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
    const { value, names, next } = top
    const length = names === null ? (value as unknown[]).length : names.length
    if (next === length) {
      text += names === null ? ']' : '}'
      stack.pop()
      continue
    }
    top.next += 1
    if (next > 0) text += ','
    if (names === null) {
      write((value as unknown[])[next])
    } else {
      const name = names[next] as string
      text += `${JSON.stringify(name)}:`
      write((value as Record<string, unknown>)[name])
    }
  }
  return text
}
