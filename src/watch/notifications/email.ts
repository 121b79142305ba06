/** Sends notifications as mail, by SMTP_URL. Its server is the operator's own, so its address is not checked. */
import type { ConnectionOptions } from 'node:tls'
import { isEmailAddress } from '../../config/parsers.ts'
import type { Secret } from '../../config/secret.ts'
import { type EndpointResponse, notSent } from '../../endpoints/post.ts'
import { oneLine } from '../../http/one-line.ts'
import { messageId, type Notification, type NotificationTarget } from './content.ts'
import { UNCHANGED, writeLines } from './text.ts'

/** For each of connecting, the greeting, and silence after that. */
const STEP_TIMEOUT_MS = 10_000
/** A mail needs seven steps. A server that is slow at each of them holds the channel no longer. */
const MAIL_TIMEOUT_MS = 30_000
/** Mail servers accept 998 characters in a line, and mailboxes show about 80. */
const SUBJECT_MAX_LENGTH = 200

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']

export type Mailer = (
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
    const lines = writeLines(notification, { consoleUrl, ...UNCHANGED })
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
