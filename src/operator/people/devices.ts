/**
 * Browsers that have signed in, by OWASP's device cookies: guesses from elsewhere do not lock out the operator of such a browser. The
 * cookie has a random id and its MAC. The key of the MAC is what the operator signs in with: the stored hash of the password, or
 * CONSOLE_TOKEN. All instances have it, it outlasts a restart, and a new password ends the trust in all earlier browsers. The hash has
 * a random salt, so the cookie does not help to guess the password.
 */
import { createHmac, type KeyObject, randomBytes } from 'node:crypto'
import { equalInConstantTime, Secret } from '../../config/secret.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'

const ID_BYTES = 16
/** base64url of ID_BYTES and of a SHA-256. Other cookies are ignored without a query. */
const DEVICE = /^([\w-]{22})\.([\w-]{43})$/

/** Who signs in: the holder of CONSOLE_TOKEN, or the operator with this address in lower case. */
export type DeviceOwner = Secret | string

/** $1 email text */
const selectKey = statement('select-key-of-devices')`
    select password_hash as key from operator
     where email = $1 and status = 'active' and password_hash is not null`

async function keyOf(database: Queryable, owner: DeviceOwner): Promise<KeyObject | string | null> {
  if (owner instanceof Secret) return owner.key()
  const [operator] = await database.query<{ key: string }>(selectKey, [owner])
  return operator?.key ?? null
}

const macOf = (id: string, key: KeyObject | string): Buffer =>
  createHmac('sha256', key).update(`device ${id}`).digest()

/** The cookie of a browser that has just signed in. Each sign-in makes a new one, so a stolen cookie shares its limit with nobody. */
export async function newDevice(database: Queryable, owner: DeviceOwner): Promise<string | null> {
  const key = await keyOf(database, owner)
  const id = randomBytes(ID_BYTES).toString('base64url')
  return key && `${id}.${macOf(id, key).toString('base64url')}`
}

/** The id of the browser. Null if this owner has not signed in with it since the last change of the password. */
export async function findDevice(
  database: Queryable,
  cookie: string,
  owner: DeviceOwner,
): Promise<string | null> {
  const [, id, mac] = DEVICE.exec(cookie) ?? []
  if (id === undefined || mac === undefined) return null
  const key = await keyOf(database, owner)
  return key !== null && equalInConstantTime(macOf(id, key), Buffer.from(mac, 'base64url')) ? id : null
}
