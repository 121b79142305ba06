/**
 * Encrypts secrets at rest with AES-256-GCM (decision 57). An encrypted value is
 *
 *   enc:v1:<id of the key>:<base64url of 12 bytes nonce, ciphertext and 16 bytes tag>
 *
 * The column and the id of the row are authenticated with it, so a value that was copied to another row cannot be read there.
 */
import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto'

const ALGORITHM = 'aes-256-gcm'
const KEY_BYTES = 32
/** 96 bits, as NIST SP 800-38D recommends for GCM. Random nonces are safe for 2^32 values per key. */
const NONCE_BYTES = 12
const TAG_BYTES = 16
const PREFIX = 'enc:v1:'
const ENCRYPTED = /^enc:v1:([A-Za-z0-9._-]{1,32}):([A-Za-z0-9_-]+)$/
const KEY_ID = /^[A-Za-z0-9._-]{1,32}$/

export const SECRET_COLUMNS = {
  official_account: ['channel_secret', 'channel_access_token', 'chat_secret'],
  endpoint: ['secret', 'previous_secret'],
  notification_channel: ['target', 'secret'],
} as const

export type SecretTable = keyof typeof SECRET_COLUMNS
export type SecretColumn = {
  [T in SecretTable]: `${T}.${(typeof SECRET_COLUMNS)[T][number]}`
}[SecretTable]

/** No key reads the stored value: the key is missing, or the value was copied from elsewhere or damaged. */
export class UnreadableSecret extends Error {
  override readonly name = 'UnreadableSecret'
  readonly column: SecretColumn
  readonly rowId: bigint

  constructor(column: SecretColumn, rowId: bigint) {
    super(`no key of SECRETS_KEYS reads ${column} of row ${rowId}`)
    this.column = column
    this.rowId = rowId
  }
}

export class SecretKeys {
  /** Without keys, values are stored as they are, and encrypted ones cannot be read. */
  static readonly NONE = new SecretKeys(new Map())

  readonly #keys: ReadonlyMap<string, KeyObject>
  /** The key that encrypts. Null: there are no keys, and new values are plain text. */
  readonly currentId: string | null

  /** @param keys by id; all of them decrypt, and the first one encrypts */
  private constructor(keys: ReadonlyMap<string, KeyObject>) {
    this.#keys = keys
    this.currentId = keys.keys().next().value ?? null
  }

  /** Throws an Error whose message describes the format of SECRETS_KEYS, without quoting the value. */
  static parse(text: string): SecretKeys {
    const keys = new Map<string, KeyObject>()
    for (const part of text.split(',')) {
      const [id = '', encoded = '', ...more] = part.trim().split(':')
      const bytes = Buffer.from(encoded, 'base64')
      const isKey = bytes.length === KEY_BYTES && bytes.toString('base64') === encoded
      if (!KEY_ID.test(id) || !isKey || more.length > 0)
        throw new Error(
          'must be id:key[,id:key…], where each key is the base64 text of 32 random bytes ("openssl rand -base64 32") and each id has up to 32 letters, digits, dots and dashes',
        )
      if (keys.has(id)) throw new Error('has two keys with one id')
      keys.set(id, createSecretKey(bytes))
    }
    return new SecretKeys(keys)
  }

  isCurrent(stored: string): boolean {
    return this.currentId !== null && stored.startsWith(`${PREFIX}${this.currentId}:`)
  }

  /** Returns the value to store. Without keys, and for a blank value, that is the text itself. */
  encrypt<T extends string | null>(column: SecretColumn, rowId: bigint, text: T): T | string {
    const key = this.currentId === null ? undefined : this.#keys.get(this.currentId)
    if (key === undefined || text === null || text.trim() === '') return text
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES })
    cipher.setAAD(placeOf(column, rowId))
    const bytes = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()])
    return `${PREFIX}${this.currentId}:${bytes.toString('base64url')}`
  }

  /** Returns the text of a stored value, which another program may have stored as plain text. Throws UnreadableSecret. */
  decrypt<T extends string | null>(column: SecretColumn, rowId: bigint, stored: T): T | string {
    if (stored === null || !stored.startsWith(PREFIX)) return stored
    const [, id = '', encoded = ''] = ENCRYPTED.exec(stored) ?? []
    const key = this.#keys.get(id)
    const bytes = Buffer.from(encoded, 'base64url')
    if (key === undefined || bytes.length < NONCE_BYTES + TAG_BYTES) throw new UnreadableSecret(column, rowId)
    const nonce = bytes.subarray(0, NONCE_BYTES)
    const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES })
    decipher.setAAD(placeOf(column, rowId))
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
    try {
      const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8')
      return text + decipher.final('utf8')
    } catch {
      throw new UnreadableSecret(column, rowId)
    }
  }

  decryptOrNull(column: SecretColumn, rowId: bigint, stored: string | null): string | null {
    try {
      return this.decrypt(column, rowId, stored)
    } catch (error) {
      if (error instanceof UnreadableSecret) return null
      throw error
    }
  }
}

export function keyIdOf(stored: string): string | null {
  return stored.startsWith(PREFIX) ? (ENCRYPTED.exec(stored)?.[1] ?? '') : null
}

/** Whether a text would be taken for an encrypted value. Every input refuses such a secret. */
export const looksEncrypted = (text: string): boolean => text.startsWith(PREFIX)

const placeOf = (column: SecretColumn, rowId: bigint) => Buffer.from(`${column}:${rowId}`)
