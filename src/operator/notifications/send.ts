/** One attempt to send a notification. Requests obey the rules of endpoints: see endpoints/post.ts and address.ts. */
import type { Config } from '../../config/config.ts'
import { RefusedUrl } from '../../endpoints/address.ts'
import { type EndpointResponse, type Message, post } from '../../endpoints/post.ts'
import { HostResolver } from '../../endpoints/resolver.ts'
import { readTarget } from '../../endpoints/targets.ts'
import type { Notification, NotificationTarget } from './content.ts'
import { type Mailer, openMailer } from './email.ts'
import { writeSlack, writeWebhook } from './requests.ts'

export interface SenderParts {
  /** whether a URL is one of this service's own: sending there would be a loop */
  isOwnUrl: (url: URL) => boolean
  /** null: no SMTP_URL */
  smtp: Mailer | null
  /** null: messages have no links */
  consoleUrl: string | null
  resolver?: HostResolver
}

export async function openNotificationSender(
  { smtpUrl, consoleUrl }: Pick<Config, 'smtpUrl' | 'consoleUrl'>,
  isOwnUrl: (url: URL) => boolean,
  resolver = new HostResolver(),
): Promise<NotificationSender> {
  const smtp = smtpUrl && (await openMailer(smtpUrl))
  return new NotificationSender({ isOwnUrl, smtp, consoleUrl, resolver })
}

export class NotificationSender {
  readonly #parts: Required<SenderParts>

  constructor(parts: SenderParts) {
    this.#parts = { resolver: new HostResolver(), ...parts }
  }

  /** Never rejects because of the receiver. */
  async send(notification: Notification, target: NotificationTarget): Promise<EndpointResponse> {
    const { smtp, consoleUrl } = this.#parts
    switch (target.format) {
      case 'slack':
        return this.#post(writeSlack(notification, consoleUrl), target)
      case 'webhook': {
        const message = writeWebhook(notification, target, consoleUrl, Date.now())
        return message === null
          ? notSent('the channel has no secret to sign with')
          : this.#post(message, target)
      }
      case 'email':
        return smtp === null ? notSent('SMTP_URL is not set') : smtp.send(notification, target, consoleUrl)
      default:
        // Another program, or a later version, has stored it.
        return notSent(`the format is not known: ${target.format satisfies never}`)
    }
  }

  async #post(message: Message, channel: NotificationTarget): Promise<EndpointResponse> {
    const { isOwnUrl, resolver } = this.#parts
    const { id, target: url, allowPrivateNetwork } = channel
    const row = { url, allow_private_network: allowPrivateNetwork }
    const target = readTarget(`notification channel ${id}`, row, isOwnUrl, resolver)
    if (target instanceof RefusedUrl) return notSent(target.message)
    const open = async () => ({ message, release: () => undefined, whenLost: () => undefined })
    return (await post(target, open)) ?? notSent('nothing was sent')
  }
}

const notSent = (reason: string): EndpointResponse => ({ status: null, reason, retryAfterMs: null })
