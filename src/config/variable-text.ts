/** The text of a variable: its value, or the content of the file that NAME_FILE names. */
import { readFileSync, statSync } from 'node:fs'
import { systemReason } from '../system-reason.ts'
import type { Variable } from './variables.ts'

/** Empty if neither variable is set. Throws an Error whose message continues "NAME …". */
export function textOf(
  { name, isSecret }: Pick<Variable<unknown>, 'name' | 'isSecret'>,
  env: Record<string, string | undefined>,
): string {
  const text = env[name]?.trim() ?? ''
  const file = isSecret ? (env[fileNameOf(name)]?.trim() ?? '') : ''
  if (file === '') return text
  if (text !== '') throw new Error(`and ${fileNameOf(name)} are both set: set one of them`)
  const content = readSecretFile(name, file)
  if (content === '') throw new Error(`has no value: the file of ${fileNameOf(name)} is empty`)
  return content
}

/** The largest secrets are keys and URLs of some hundred bytes. */
const SECRET_FILE_MAX_BYTES = 64 * 1024

/** Reading a pipe would wait for its writer, and a device such as /dev/zero has no end. */
function readSecretFile(name: string, file: string): string {
  const refuse = (why: string) => new Error(`has no value: the file of ${fileNameOf(name)} ${why}`)
  try {
    const found = statSync(file)
    if (!found.isFile() && !found.isDirectory()) throw refuse('is not a regular file')
    if (found.size > SECRET_FILE_MAX_BYTES) throw refuse('is larger than 64 KiB')
    return readFileSync(file, 'utf8').trim()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw code === undefined ? error : refuse(`cannot be read: ${systemReason(error)}`)
  }
}

export const fileNameOf = (name: string) => `${name}_FILE`
