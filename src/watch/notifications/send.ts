/** One attempt to send a notification. Requests obey the rules of endpoints: see endpoints/post.ts and address.ts. */
import type { ConnectionOptions } from 'node:tls'
import type { Config } from '../../config/config.ts'
import { isEmailAddress } from '../../config/parsers.ts'
import { type Secret, secretOrNull } from '../../config/secret.ts'
import type { AddressChecks, Route } from '../../endpoints/address.ts'
import { JSON_TYPE, standardMessage } from '../../endpoints/messages.ts'
import { type EndpointResponse, type Message, notSent, sendNow } from '../../endpoints/post.ts'
import { HostResolver } from '../../endpoints/resolver.ts'
import { toJson } from '../../ids.ts'
import { chatName, oneLine, WORD_JOINER } from '../../observability/one-line.ts'
import { messageId, type Notification, type NotificationTarget, type NotifiedAccount } from './content.ts'
import { explainAccount, linkOf, nameOf, subjectOf, withNames, writeLines } from './text.ts'

export interface SenderParts extends AddressChecks {
  /** null: no SMTP_URL */
  smtp: Mailer | null
  /** null: messages have no links */
  consoleUrl: string | null
}

/** Never rejects because of the receiver. */
export type NotificationSender = (
  notification: Notification,
  target: NotificationTarget,
) => Promise<EndpointResponse>

export async function openNotificationSender(
  { smtpUrl, consoleUrl }: Pick<Config, 'smtpUrl' | 'consoleUrl'>,
  isOwnUrl: (url: URL) => boolean,
  route: Route = new HostResolver(),
): Promise<NotificationSender> {
  const smtp = smtpUrl && (await openMailer(smtpUrl))
  return notificationSender({ isOwnUrl, smtp, consoleUrl, route })
}

export function notificationSender({ smtp, consoleUrl, ...checks }: SenderParts): NotificationSender {
  return async (notification, channel) => {
    const { id, format, target: url, allowPrivateNetwork } = channel
    if (format === 'email')
      return smtp === null ? notSent('SMTP_URL is not set') : smtp(notification, channel, consoleUrl)
    // Another program, or a later version, has stored it.
    if (format !== 'slack' && format !== 'webhook')
      return notSent(`the format is not known: ${format satisfies never}`)
    const message =
      format === 'slack'
        ? writeSlack(notification, consoleUrl)
        : writeWebhook(notification, channel, consoleUrl, Date.now())
    if (message === null) return notSent('the channel has no secret to sign with')
    const row = { url, allow_private_network: allowPrivateNetwork }
    return sendNow(`notification channel ${id}`, row, message, checks)
  }
}

export function writeSlack(notification: Notification, consoleUrl: string | null): Message {
  const text = writeLines(notification, consoleUrl, chatName, chatLine).join('\n')
  return {
    headers: { 'content-type': JSON_TYPE, 'user-agent': 'oa-audience' },
    body: JSON.stringify({ text }),
  }
}

/** For programs, which read the codes. The sentences are English. Returns null if the channel has no secret to sign with. */
export function writeWebhook(
  notification: Notification,
  { secret }: Pick<NotificationTarget, 'secret'>,
  consoleUrl: string | null,
  nowMs: number,
): Message | null {
  const key = secretOrNull(secret)
  if (key === null) return null
  const { type, data } = contentOf({ ...notification, language: 'en' }, consoleUrl)
  const message = { id: messageId(notification), type, data: toJson(data), atMs: notification.createdMs }
  return standardMessage(message, [key], nowMs)
}

function contentOf(notification: Notification, consoleUrl: string | null): { type: string; data: object } {
  const { kind, facts, accounts, accountCount } = notification
  const text = {
    message: oneLine(subjectOf(withNames(notification)), 500),
    link: linkOf(notification, consoleUrl),
  }
  switch (kind) {
    case 'platform_down':
    case 'platform_up': {
      const { since = null, until = null, cause = null, accounts: count = 0 } = facts
      const isDown = kind === 'platform_down'
      const change = isDown ? { before: 'up', after: 'down' } : { before: 'down', after: 'up' }
      const reason = isDown ? 'platform_unreachable' : null
      return { type: 'platform.status', data: { ...change, reason, ...text, cause, since, until, count } }
    }
    case 'test':
      return { type: 'notification.test', data: text }
    default: {
      const all = accounts.map((account) => accountData(account, notification, consoleUrl))
      const reminder = kind === 'reminder' ? { reminder: true } : {}
      const cause = { cause: facts.cause ?? null }
      const data = { ...all[0], ...reminder, ...cause, count: accountCount, accounts: all }
      return { type: 'account.status', data }
    }
  }
}

function accountData(account: NotifiedAccount, notification: Notification, consoleUrl: string | null) {
  const { id: accountId, organizationId, before, after, problem } = account
  const { message = null, fix = null } = explainAccount(account, notification) ?? {}
  const reason = problem?.reason ?? null
  const link = linkOf({ accounts: [account], accountCount: 1 }, consoleUrl)
  return { accountId, name: nameOf(account), organizationId, before, after, reason, message, fix, link }
}

/**
 * Anybody who may edit an account chooses its name. Slack reads `<!here>`, `<@U1>` and `<https://…|text>`; Mattermost and others also
 * `@channel` and code in backticks. A URL stays as it is, because an operator copies it.
 */
export const chatLine = (line: string): string =>
  line
    .replaceAll('`', "'")
    .replace(/@(?=\S)/g, `@${WORD_JOINER}`)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')

// Mail, by SMTP_URL. Its server is the operator's own, so its address is not checked.

/** For each of connecting, the greeting, and silence after that. */
const STEP_TIMEOUT_MS = 10_000
/** A mail needs seven steps. A server that is slow at each of them holds the channel no longer. */
const MAIL_TIMEOUT_MS = 30_000
/** Mail servers accept 998 characters in a line, and mailboxes show about 80. */
const SUBJECT_MAX_LENGTH = 200

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']

type Mailer = (
  notification: Notification,
  target: NotificationTarget,
  consoleUrl: string | null,
) => Promise<EndpointResponse>

/** Tests use shorter times, and certificates that no authority has signed. */
interface MailerOptions {
  stepTimeoutMs: number
  mailTimeoutMs: number
  tls: ConnectionOptions
}

/** Loads nodemailer, which takes 60 ms. */
export async function openMailer(smtpUrl: Secret, options: Partial<MailerOptions> = {}): Promise<Mailer> {
  const { stepTimeoutMs = STEP_TIMEOUT_MS, mailTimeoutMs = MAIL_TIMEOUT_MS, tls = {} } = options
  const { createTransport } = await import('nodemailer')
  const url = new URL(smtpUrl.reveal())
  const from = url.searchParams.get('from') ?? decodeURIComponent(url.username)
  // nodemailer would read further parameters as its own settings.
  url.search = ''
  const transport = createTransport({
    url: url.href,
    // A password is not sent without encryption, even if somebody on the way removes STARTTLS from the greeting.
    requireTLS: url.protocol === 'smtp:' && url.username !== '' && !LOOPBACK.includes(url.hostname),
    connectionTimeout: stepTimeoutMs,
    greetingTimeout: stepTimeoutMs,
    socketTimeout: stepTimeoutMs,
    dnsTimeout: stepTimeoutMs,
    tls,
    // A message has no attachment. Nothing in it may read a file or a URL.
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  const domain = from.slice(from.lastIndexOf('@') + 1)
  return async (notification, { target }, consoleUrl) => {
    // Another program may have stored anything.
    if (!isEmailAddress(target)) return notSent('the target is not the address of a mailbox')
    const lines = writeLines(notification, consoleUrl)
    const sending = transport.sendMail({
      from: { name: 'oa-audience', address: from },
      // As an object, so that no character of it separates addresses.
      to: { name: '', address: target },
      subject: oneLine(lines[0] ?? '', SUBJECT_MAX_LENGTH),
      text: `${lines.join('\n\n')}\n`,
      messageId: `<${messageId(notification)}@${domain}>`,
      date: new Date(notification.createdMs),
      // Ends the connection.
      signal: AbortSignal.timeout(mailTimeoutMs),
      // Responders for absence do not answer such mail.
      headers: { 'Auto-Submitted': 'auto-generated', 'X-Auto-Response-Suppress': 'All' },
    })
    return sending.then(acceptedBy, refusedBy)
  }
}

function acceptedBy({ response }: { response?: string | undefined }): EndpointResponse {
  const code = Number(/^2\d\d/.exec(response ?? '')?.[0] ?? 250)
  return { status: code, reason: '', retryAfterMs: null }
}

/** The text of a mail server may quote the message or the address, so only codes are kept. */
function refusedBy(
  error: Error & { code?: string; responseCode?: number; command?: string },
): EndpointResponse {
  const { code = '', responseCode = null, command = '' } = error
  if (code === 'EABORT') return notSent('the mail server took too long')
  const status = responseCode !== null && responseCode >= 300 && responseCode < 600 ? responseCode : null
  const step = /^[A-Z ]{1,20}$/.test(command) ? ` at ${command}` : ''
  const known = /^[A-Z][A-Z0-9_]{1,60}$/.test(code) ? code : 'the connection failed'
  return { status, reason: `${known}${step}`, retryAfterMs: null }
}
