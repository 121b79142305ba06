/** Requests that no HTTP client would send, as bytes on a socket. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import type { Service } from './service.ts'

/** Opens a connection for one test, and sends these bytes. */
export async function openSocket(url: string, text: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  socket.on('error', () => undefined)
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

/** Sends bytes to the service and returns everything that it answers until it closes the connection. */
export function sendRaw(service: Pick<Service, 'url'>, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1', () =>
      socket.write(request, 'latin1'),
    )
    let answer = ''
    socket.on('data', (chunk) => {
      answer += chunk
    })
    socket.on('close', () => resolve(answer))
    // The service may reset the connection after its response.
    socket.on('error', (error) => (answer === '' ? reject(error) : undefined))
  })
}

// biome-ignore lint/suspicious/noExplicitAny: tests read any answer
export function bodyOf(rawAnswer: string): any {
  return JSON.parse(rawAnswer.split('\r\n\r\n')[1] as string)
}

export const UNDECODABLE = 'GET /api/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
export const BROKEN_HEADER = 'GET /api HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n'
export const WITHOUT_HOST = 'GET /api HTTP/1.1\r\nConnection: close\r\n\r\n'
export const UNKNOWN_EXPECTATION = 'GET /api HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n'
