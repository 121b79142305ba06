/** Apart from errors.ts, which the pages of the console import: browsers have no node:util. */
import { getSystemErrorMap } from 'node:util'

/** `permission denied (EACCES)`: what an error of the system means, with its code. The message of any other error. */
export function systemReason(error: unknown): string {
  const { code, errno = 0, message } = error as NodeJS.ErrnoException
  const [, meaning] = getSystemErrorMap().get(errno) ?? []
  return meaning === undefined ? (code ?? message) : `${meaning} (${code})`
}
