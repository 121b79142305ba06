/**
 * The parts of the Model Context Protocol's SDK that the assistant's server uses. The build bundles the SDK into this file, so an
 * installation has none of its packages, and the service never loads it (docs/decisions/0061-assistants.md).
 */
export { ProtocolError, ProtocolErrorCode, Server } from '@modelcontextprotocol/server'
export { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio'
