/** The part of LINE Login that proves the visitors of pages: ID tokens, as `liff.getIDToken()` returns them, and their keys. */
import { generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto'
import { type JWK, type JWTPayload, SignJWT } from 'jose'

/** LINE's ID tokens expire after an hour. */
const LIFETIME_SECONDS = 3_600
/** Keys that are published: the current one, and the one before, which signed tokens that are still valid. */
const PUBLISHED_MAX = 2

interface SigningKey {
  kid: string
  privateKey: KeyObject
  publicKey: KeyObject
}

interface IdTokenFields {
  userId: string
  loginChannelId: string
  /** Default: now. */
  issuedAtMs?: number
}

export class SimulatedLogin {
  /** Newest first. */
  #keys: SigningKey[] = [newKey()]

  /** The body of GET /oauth2/v2.1/certs. */
  certs(): { keys: JWK[] } {
    const keys = this.#keys.map(({ kid, publicKey }) => ({
      ...publicKey.export({ format: 'jwk' }),
      kid,
      alg: 'ES256',
      use: 'sig',
    }))
    return { keys: keys as JWK[] }
  }

  /** Signs with a new key from now on. */
  rotateKeys(): void {
    this.#keys = [newKey(), ...this.#keys].slice(0, PUBLISHED_MAX)
  }

  /** As LINE issues it to a person at a login channel. */
  idToken({ userId, loginChannelId, issuedAtMs = Date.now() }: IdTokenFields): Promise<string> {
    const issuedAt = Math.floor(issuedAtMs / 1000)
    return this.sign({
      iss: 'https://access.line.me',
      sub: userId,
      aud: loginChannelId,
      exp: issuedAt + LIFETIME_SECONDS,
      iat: issuedAt,
      amr: ['linesso'],
      name: 'Ann',
      picture: 'https://profile.line-scdn.net/ann',
    })
  }

  /** Signs any claims with the current key. */
  sign(claims: JWTPayload): Promise<string> {
    const { kid, privateKey } = this.#keys[0] as SigningKey
    return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', typ: 'JWT', kid }).sign(privateKey)
  }
}

function newKey(): SigningKey {
  return { kid: randomBytes(16).toString('hex'), ...generateKeyPairSync('ec', { namedCurve: 'P-256' }) }
}
