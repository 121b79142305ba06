/** Passwords of operators: which are accepted, and how they are stored. */
import { randomBytes, type ScryptOptions, scrypt } from 'node:crypto'
import { promisify } from 'node:util'
import { equalInConstantTime } from '../config/secret.ts'
import { AppError } from '../errors.ts'
import { refuseInput } from '../http/validate.ts'

const PASSWORD_MIN_LENGTH = 12
/** Longer than any password manager's default. A hash takes the same time for every length. */
export const PASSWORD_MAX_LENGTH = 256

/** OWASP's recommendation for 32 MiB: N = 2^15, r = 8, p = 3. A hash takes 0.2 to 0.6 s of one core. */
const COST = { N: 2 ** 15, r: 8, p: 3 }
const HASH_BYTES = 32
const SALT_BYTES = 16
/** scrypt needs 128 × N × r bytes and a little more: 32 MiB. */
const MEMORY_MAX_BYTES = 48 * 1024 * 1024
/** Hashes that wait for their turn: at 0.6 s each, the last one waits 5 s. */
const WAITING_MAX = 8
/** Of these, how many unknown browsers may fill: their guesses leave a place for operators. */
const UNKNOWN_WAITING_MAX = 6

/** Throws `invalid_input` for a password that is too short, or among the most common ones. */
export async function requireGoodPassword(password: string, email: string): Promise<void> {
  if ([...password].length < PASSWORD_MIN_LENGTH)
    refuseInput('password', `must have at least ${PASSWORD_MIN_LENGTH} characters`)
  if (password.toLowerCase() === email || (await isCommon(password)))
    refuseInput('password', 'is easy to guess: use several unrelated words, or a password manager')
}

/** A common password stays common with digits or signs after it, and twice in a row. */
async function isCommon(password: string): Promise<boolean> {
  // Loaded when somebody chooses a password: the list has 49,000 entries.
  const { dictionary } = await import('@zxcvbn-ts/language-common')
  const common = new Set<unknown>(dictionary['passwords-common'])
  const text = password.toLowerCase()
  const base = text.replace(/[^\p{L}]+$/u, '')
  const repeated = /^(.+?)\1+$/u.exec(text)?.[1]
  return common.has(text) || common.has(base) || repeated !== undefined || new Set(text).size < 5
}

const stored = (salt: Buffer, hash: Buffer): string =>
  ['scrypt', COST.N, COST.r, COST.p, salt.toString('base64'), hash.toString('base64')].join('$')

/** Returns the hash with its parameters and salt: `scrypt$N$r$p$salt$hash`. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(SALT_BYTES)
  return stored(salt, await derive(password, salt, COST))
}

const NOBODY = stored(Buffer.alloc(SALT_BYTES), Buffer.alloc(HASH_BYTES))

/**
 * Takes the same time for an operator who does not exist or has no password, so that nobody learns who has one.
 * @param isKnown whether the operator has signed in with this browser before
 */
export async function isPassword(
  password: string,
  hashed: string | null,
  isKnown: boolean,
): Promise<boolean> {
  const [, N, r, p, salt = '', hash = ''] = (hashed ?? NOBODY).split('$')
  const cost = { N: Number(N), r: Number(r), p: Number(p) }
  const waitingMax = isKnown ? WAITING_MAX : UNKNOWN_WAITING_MAX
  const derived = await derive(password, Buffer.from(salt, 'base64'), cost, waitingMax)
  return equalInConstantTime(derived, Buffer.from(hash, 'base64')) && hashed !== null
}

let waiting = 0
let last: Promise<unknown> = Promise.resolve()

/**
 * One at a time, because every hash holds 32 MiB and one of the four threads that also resolve the names of databases. Throws
 * `sign_in_limited` if too many wait.
 */
function derive(
  password: string,
  salt: Buffer,
  cost: typeof COST,
  waitingMax = WAITING_MAX,
): Promise<Buffer> {
  if (waiting >= waitingMax) throw new AppError('sign_in_limited', { retryAfterSeconds: 10 })
  waiting += 1
  const options = { ...cost, maxmem: MEMORY_MAX_BYTES }
  // Two spellings of one character are the same password (RFC 8265).
  const text = password.normalize('NFC')
  const hash = last
    .then(() =>
      promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt)(text, salt, HASH_BYTES, options),
    )
    .finally(() => (waiting -= 1))
  last = hash.catch(() => undefined)
  return hash
}
