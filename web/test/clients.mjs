// The official clients, unchanged, against a running server: node clients.mjs ADDRESS ai|ai7|agui TEXT
import { HttpAgent } from '@ag-ui/client'

const [address, which, text] = process.argv.slice(2)

async function ai() {
  const { DefaultChatTransport, readUIMessageStream } = await import(which)
  const transport = new DefaultChatTransport({ api: `${address}/ai` })
  const message = { id: 'from-ai', role: 'user', parts: [{ type: 'text', text }] }
  const options = { chatId: 'c', messages: [message], messageId: undefined, abortSignal: undefined, trigger: 'submit-message' }
  let last
  for await (const told of readUIMessageStream({ stream: await transport.sendMessages(options) })) last = told
  const again = await transport.reconnectToStream({ chatId: 'c' })
  return { parts: last.parts, resumed: again !== null }
}

async function agui() {
  const agent = new HttpAgent({ url: `${address}/agui`, threadId: 't', initialMessages: [{ id: 'u1', role: 'user', content: text }] })
  const seen = []
  const { result } = await agent.runAgent({ runId: 'from-agui' }, { onEvent: ({ event }) => void seen.push(event.type) })
  return { messages: agent.messages, events: [...new Set(seen)], result }
}

console.log(JSON.stringify(await (which === 'agui' ? agui() : ai())))
