/** The routes that an app has. */
import type { FastifyInstance } from 'fastify'

/** Method and path of each route, where `:` stands for a parameter. */
export function printedRoutes(app: FastifyInstance): string[] {
  const routes: string[] = []
  const parents: string[] = []
  for (const line of app.printRoutes({ commonPrefix: false }).split('\n')) {
    const [, indent = '', path = '', methods = ''] = /^([│ ]*)[├└]── (\S+)(?: \((.*)\))?$/.exec(line) ?? []
    if (path === '') continue
    parents.length = indent.length / 4
    parents.push(path.replace(/:[^/]+/g, ':'))
    for (const method of methods.split(', ')) routes.push(`${method} ${parents.join('')}`)
  }
  return routes.sort()
}
