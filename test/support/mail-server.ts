/** A real SMTP server for notifications. */
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { onTestFinished } from 'vitest'
import { Secret } from '../../src/config/secret.ts'

interface ReceivedMail {
  from: string
  to: string[]
  /** headers and body */
  raw: string
  isEncrypted: boolean
  user: string | null
}

interface MailServer {
  /** without credentials */
  url: Secret
  port: number
  mails: ReceivedMail[]
  /** The response to the next mails; null: accepted. */
  refusal: { code: number; text: string } | null
}

export async function startMailServer(options: SMTPServerOptions = {}): Promise<MailServer> {
  const mails: ReceivedMail[] = []
  const smtp = new SMTPServer({
    authOptional: true,
    disabledCommands: options.key === undefined ? ['STARTTLS'] : [],
    onAuth: ({ username, password }, _session, callback) =>
      password === 'right'
        ? callback(null, { user: username ?? '' })
        : callback(new Error(`no mailbox for ${username} with ${password}`)),
    onData: async (stream, session, callback) => {
      const raw = await text(stream)
      if (server.refusal !== null) {
        const { code, text: message } = server.refusal
        return callback(Object.assign(new Error(message), { responseCode: code }))
      }
      const { mailFrom, rcptTo } = session.envelope
      mails.push({
        from: mailFrom === false ? '' : mailFrom.address,
        to: rcptTo.map(({ address }) => address),
        raw,
        isEncrypted: session.secure,
        user: typeof session.user === 'string' ? session.user : null,
      })
      callback()
    },
    ...options,
  })
  smtp.on('error', () => undefined)
  await new Promise<void>((resolve) => smtp.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => new Promise<void>((resolve) => smtp.close(resolve)))
  const { port } = smtp.server.address() as AddressInfo
  const url = new Secret(`smtp://127.0.0.1:${port}?from=alerts@example.com`)
  const server: MailServer = { url, port, mails, refusal: null }
  return server
}
