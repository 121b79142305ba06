/** Where endpoints are sent to: their URLs, read once. */
import { LRUCache } from 'lru-cache'
import { secretOrNull } from '../secret.ts'
import { RefusedUrl, readEndpointUrl } from './address.ts'
import type { ContentRow } from './backlog.ts'
import type { Target } from './post.ts'

/** URLs that are kept as they were read. */
const TARGETS_MAX = 10_000

export class Targets {
  readonly #isOwnUrl: (url: URL) => boolean
  /** By the URL's text and whether it may be private: reading one takes 10 µs. */
  readonly #targets = new LRUCache<string, Target | RefusedUrl>({ max: TARGETS_MAX })

  /** @param isOwnUrl whether a URL is one of this service's own: sending there would be a loop */
  constructor(isOwnUrl: (url: URL) => boolean) {
    this.#isOwnUrl = isOwnUrl
  }

  /** RefusedUrl: nothing is sent, for the reason that it says. */
  of(row: ContentRow): Target | RefusedUrl {
    if (secretOrNull(row.format === 'line' ? row.channel_secret : row.secret) === null) {
      return new RefusedUrl(`there is no ${row.format === 'line' ? 'channel secret' : 'secret'} to sign with`)
    }
    const key = `${row.allow_private_network} ${row.url}`
    const target = this.#targets.get(key) ?? this.#readTarget(row)
    this.#targets.set(key, target)
    return target
  }

  #readTarget({ url, allow_private_network: allowPrivateNetwork }: ContentRow): Target | RefusedUrl {
    try {
      const target = { url: readEndpointUrl(url, allowPrivateNetwork), allowPrivateNetwork }
      if (this.#isOwnUrl(target.url)) return new RefusedUrl("the URL is this service's own: a loop")
      return target
    } catch (error) {
      if (error instanceof RefusedUrl) return error
      throw error
    }
  }
}
